#!/bin/bash
cd /app || exit 1
mkdir stable && mv manual.txt stable/
