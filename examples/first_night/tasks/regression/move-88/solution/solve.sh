#!/bin/bash
cd /app || exit 1
mkdir basement && mv transcript.txt basement/
