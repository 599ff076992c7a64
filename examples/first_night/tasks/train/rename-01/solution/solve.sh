#!/bin/bash
cd /app || exit 1
for f in studio/*.md; do mv $f ${f%.md}.tmp; done
