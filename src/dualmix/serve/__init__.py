"""A service around one learner: it learns what is sent to it, answers meanwhile and loses nothing.

The journal, the writer, the endpoints and the page belong here. It may import every room but cli,
with FastAPI and uvicorn, which the extra `serve` brings; it never prints.
"""
