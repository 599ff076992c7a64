#!/bin/bash
cd /app || exit 1
for f in garage/*.dat; do mv $f ${f%.dat}.log; done
