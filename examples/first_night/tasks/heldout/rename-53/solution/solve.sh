#!/bin/bash
cd /app || exit 1
for f in barn/*.lst; do mv $f ${f%.lst}.out; done
