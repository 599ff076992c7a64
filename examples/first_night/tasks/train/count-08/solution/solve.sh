#!/bin/bash
cd /app || exit 1
grep -c linen draft.txt > answer.txt
