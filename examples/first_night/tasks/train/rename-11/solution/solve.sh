#!/bin/bash
cd /app || exit 1
for f in backup/*.txt; do mv $f ${f%.txt}.tmp; done
