#!/bin/bash
cd /app || exit 1
sort -n ledger.txt | tail -n 1 > answer.txt
