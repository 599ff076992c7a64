#!/bin/bash
cd /app || exit 1
for f in factory/*.lst; do mv $f ${f%.lst}.rst; done
