#!/bin/bash
cd /app || exit 1
find library -name draft.txt > answer.txt
