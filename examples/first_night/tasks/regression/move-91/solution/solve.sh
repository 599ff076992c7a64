#!/bin/bash
cd /app || exit 1
mkdir warehouse && mv schedule.txt warehouse/
