#!/bin/bash
cd /app || exit 1
for f in studio/*.txt; do mv $f ${f%.txt}.bak; done
