#!/bin/bash
cd /app || exit 1
for f in project/*.md; do mv $f ${f%.md}.tmp; done
