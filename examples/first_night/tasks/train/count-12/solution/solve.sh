#!/bin/bash
cd /app || exit 1
grep -c valley orders.txt > answer.txt
