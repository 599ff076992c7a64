#!/bin/bash
cd /app || exit 1
for f in project/*.dat; do mv $f ${f%.dat}.md; done
