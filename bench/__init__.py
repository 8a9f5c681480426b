"""The benchmark: the same work done by Adjourn, by LangGraph and by a hand-written loop, on the same machine."""
