#!/bin/bash
cd /app || exit 1
grep -c nutmeg memo.txt > answer.txt
