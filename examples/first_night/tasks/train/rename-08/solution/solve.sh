#!/bin/bash
cd /app || exit 1
for f in garage/*.log; do mv $f ${f%.log}.dat; done
