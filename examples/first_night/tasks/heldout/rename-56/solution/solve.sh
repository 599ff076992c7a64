#!/bin/bash
cd /app || exit 1
for f in vault/*.ini; do mv $f ${f%.ini}.out; done
