# ready-made: python:3.12-slim
