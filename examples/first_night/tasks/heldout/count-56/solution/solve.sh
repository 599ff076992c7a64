#!/bin/bash
cd /app || exit 1
grep -c canyon tickets.txt > answer.txt
