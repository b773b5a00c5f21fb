"""HTTP part of a server process: metrics and health (SPEC U-08). It needs the extra ``web``; no agent loads it."""
