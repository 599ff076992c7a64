#!/bin/bash
cd /app || exit 1
for f in closet/*.lst; do mv $f ${f%.lst}.rst; done
