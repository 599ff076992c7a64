#!/bin/bash
cd /app || exit 1
mkdir stable && cp schedule.txt stable/
