#!/usr/bin/env bash
# Sees to it that a Chromium is there for tests/report/test_browser.py. Where it cannot be had, that test is skipped and says so.
set -u
if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "no Chromium here and no right to install one: the browser test will be skipped"
  exit 0
fi
log=$(mktemp)
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >"$log" 2>&1; then
  echo "Chromium cannot be installed ($(tail -n 1 "$log")): the browser test will be skipped"
fi
rm -f "$log"
exit 0
