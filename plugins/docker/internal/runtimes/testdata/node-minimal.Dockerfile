# ready-made: node:20-slim
