#!/bin/bash
cd /app || exit 1
find attic -name letters.txt > answer.txt
