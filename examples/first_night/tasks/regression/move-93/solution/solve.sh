#!/bin/bash
cd /app || exit 1
mkdir hangar && mv manual.txt hangar/
