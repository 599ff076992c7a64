#!/bin/bash
cd /app || exit 1
for f in factory/*.ini; do mv $f ${f%.ini}.lst; done
