#!/bin/bash
cd /app || exit 1
sort -n chapter.txt | tail -n 1 > answer.txt
