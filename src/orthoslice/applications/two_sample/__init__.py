"""Are two samples further apart than chance puts them?"""
