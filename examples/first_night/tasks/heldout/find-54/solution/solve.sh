#!/bin/bash
cd /app || exit 1
find factory -name stock.txt > answer.txt
