"""What all packages use: parameters, threads, random numbers, progress, files. It knows nothing of recommendation."""
