#!/bin/bash
cd /app || exit 1
grep -c amber diary.txt > answer.txt
