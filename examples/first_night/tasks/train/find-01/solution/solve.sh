#!/bin/bash
cd /app || exit 1
find archive -name events.txt > answer.txt
