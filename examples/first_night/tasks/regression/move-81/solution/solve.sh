#!/bin/bash
cd /app || exit 1
mkdir hangar && cp transcript.txt hangar/
