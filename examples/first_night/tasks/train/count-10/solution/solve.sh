#!/bin/bash
cd /app || exit 1
grep -c ginger minutes.txt > answer.txt
