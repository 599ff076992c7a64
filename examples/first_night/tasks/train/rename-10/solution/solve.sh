#!/bin/bash
cd /app || exit 1
for f in kitchen/*.txt; do mv $f ${f%.txt}.bak; done
