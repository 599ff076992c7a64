#!/bin/bash
cd /app || exit 1
sort -n events.txt | tail -n 1 > answer.txt
