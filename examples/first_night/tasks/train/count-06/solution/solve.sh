#!/bin/bash
cd /app || exit 1
grep -c river events.txt > answer.txt
