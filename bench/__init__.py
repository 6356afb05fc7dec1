"""The benchmark: this platform and its peers side by side on one machine (docs/performance.md); run it with bin/bench."""
