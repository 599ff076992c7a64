#!/bin/bash
cd /app || exit 1
find depot -name draft.txt > answer.txt
