#!/bin/bash
cd /app || exit 1
grep -c sparrow guests.txt > answer.txt
