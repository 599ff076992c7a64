#!/bin/bash
cd /app || exit 1
grep -c lemon events.txt > answer.txt
