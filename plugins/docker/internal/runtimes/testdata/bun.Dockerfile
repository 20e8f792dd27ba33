# ready-made: oven/bun:1-slim
