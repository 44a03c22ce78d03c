"""Why is my training slow? Any training program, watched and measured by leaving parts out."""
