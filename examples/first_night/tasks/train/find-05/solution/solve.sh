#!/bin/bash
cd /app || exit 1
find attic -name budget.txt > answer.txt
