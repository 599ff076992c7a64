#!/bin/bash
cd /app || exit 1
find cabin -name outline.txt > answer.txt
