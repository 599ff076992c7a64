#!/bin/bash
cd /app || exit 1
for f in office/*.log; do mv $f ${f%.log}.dat; done
