#!/bin/bash
cd /app || exit 1
grep -c candle ledger.txt > answer.txt
